"""All pages, in the order of the navigation."""

from __future__ import annotations

from horae.service.dashboard.page import Page
from horae.service.dashboard.pages import cluster, efficiency, events, fairness, job, queue, whatif

PAGES = (
    Page("cluster", "/cluster", "Cluster", cluster.data),
    Page("queue", "/queue", "Queue", queue.data),
    Page("fairness", "/fairness", "Fairness", fairness.data),
    Page("efficiency", "/efficiency", "Efficiency", efficiency.data),
    Page("whatif", "/whatif", "What if", whatif.data, is_live=False),
    Page("job", "/jobs/{job_id}", "Job", job.data, in_navigation=False),
    Page("events", "/events", "Events", events.data),
)
