"""The one error of the build."""


class BuildError(Exception):
    """The image cannot be built: what failed, and what to do about it."""
