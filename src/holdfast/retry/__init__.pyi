from holdfast.retry import argument_checks as argument_checks, clock as clock
from holdfast.retry.backoff import (
    Backoff as Backoff,
    constant as constant,
    decorrelated as decorrelated,
    exponential as exponential,
    linear as linear,
    random_fraction as random_fraction,
)
from holdfast.retry.budget import Budget as Budget
from holdfast.retry.clock import (
    StopEvent as StopEvent,
    VirtualClock as VirtualClock,
    asleep as asleep,
    sleep as sleep,
    testing_mode as testing_mode,
)
from holdfast.retry.deadline import (
    Deadline as Deadline,
    current_deadline as current_deadline,
    current_expiry as current_expiry,
)
from holdfast.retry.policy import TRANSIENT as TRANSIENT, Policy as Policy, RetryListener as RetryListener
from holdfast.retry.retry_decision import parse_retry_after as parse_retry_after
from holdfast.retry.runner import (
    Attempt as Attempt,
    RetryContext as RetryContext,
    RetryDecorator as RetryDecorator,
    retry as retry,
)
from holdfast.retry.state import causes as causes
