"""What can be wrong with a pipeline, told in one line that names the place and the fix."""

from millstream.errors import MillstreamError


class PipelineError(MillstreamError):
    """A pipeline that cannot run, or that failed; the text says where and what to do."""


class MissingPackage(PipelineError):
    """A part of the pipeline needs a package that is not installed."""

    def __init__(self, package: str, what: str, extra: str = "pipelines") -> None:
        super().__init__(f"{what} needs {package}: pip install 'millstream[{extra}]'")
