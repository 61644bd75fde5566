"""The processes and machines that perform tasks."""
