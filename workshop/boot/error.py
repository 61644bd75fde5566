"""The one error of the build."""


class BuildError(Exception):
    """The image cannot be built: what failed, and what to do about it."""


class MissingError(BuildError):
    """A program or a package that the build needs is not available here."""
