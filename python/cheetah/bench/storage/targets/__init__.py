"""Targets: directories, file systems in files, and drives, each made ready and taken down."""
