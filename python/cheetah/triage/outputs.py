"""The files that a triage writes to its folder."""

from cheetah.triage.tables import notable

TABLES = (
    "bodyfile.txt",
    "files.parquet",
    "timeline.parquet",
    "findings.parquet",
    notable.TABLE,
    notable.MD5S,
    "summary.json",
)
"""Those that the report lists."""

OUTPUTS = (*TABLES, "report.html")
