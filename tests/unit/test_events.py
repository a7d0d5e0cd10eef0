"""The event bus delivers each event to the subscribers of that moment."""

from holdfast.events import EventBus, StepStarted

FIRST, SECOND = StepStarted(step="a", title="A"), StepStarted(step="b", title="B")


def test_subscriber_added_during_delivery_receives_later_events_only():
    seen = []

    def add_subscriber(event):
        if event is FIRST:
            bus.subscribe(seen.append)

    bus = EventBus(add_subscriber)
    bus.emit(FIRST)
    bus.emit(SECOND)
    assert seen == [SECOND]
