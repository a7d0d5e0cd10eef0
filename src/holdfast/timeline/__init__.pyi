from holdfast.timeline.build import build_timeline as build_timeline
from holdfast.timeline.history import (
    earlier_run as earlier_run,
    find_run as find_run,
    read_timeline as read_timeline,
)
from holdfast.timeline.model import (
    Comparison as Comparison,
    RetryMark as RetryMark,
    RunSummary as RunSummary,
    SkippedSteps as SkippedSteps,
    StepChange as StepChange,
    Timeline as Timeline,
    TimelineStep as TimelineStep,
    ValueChange as ValueChange,
)
from holdfast.timeline.page import render_page as render_page
