"""Records to metrics with intervals, to figures and tables, to one self-contained HTML page."""

from typing import TYPE_CHECKING

from surefoot.on_demand import lazy_attributes

if TYPE_CHECKING:
    from surefoot.report.calibration import calibration_page
    from surefoot.report.figures import learning_curves, png, svg
    from surefoot.report.metrics import Summary, binomial_interval, mean_interval, summarise
    from surefoot.report.page import Page, Section, render, versions
    from surefoot.report.table import Cell, Table, events_table, results_table
    from surefoot.report.verdict import Answer, Verdict
else:  # the page of a deployment draws no figures with matplotlib
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "calibration": "calibration_page",
            "figures": "learning_curves png svg",
            "metrics": "Summary binomial_interval mean_interval summarise",
            "page": "Page Section render versions",
            "table": "Cell Table events_table results_table",
            "verdict": "Answer Verdict",
        },
    )

__all__ = [
    "Answer",
    "Cell",
    "Page",
    "Section",
    "Summary",
    "Table",
    "Verdict",
    "binomial_interval",
    "calibration_page",
    "events_table",
    "learning_curves",
    "mean_interval",
    "png",
    "render",
    "results_table",
    "summarise",
    "svg",
    "versions",
]
