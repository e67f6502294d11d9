"""All pages, in the order of the navigation."""

from __future__ import annotations

from horae.service.dashboard.page import Page
from horae.service.dashboard.pages import events, queue

PAGES = (
    Page("queue", "/queue", "Queue", queue.data),
    Page("events", "/events", "Events", events.data),
)
