"""The pure core: facts go in as events, commands come out. An engine would carry them out."""

import horae
from horae.model.events import JobStarted, JobSubmitted, Tick
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape

setup = horae.load_cluster("2x4:V100")
scheduler = horae.Scheduler(setup)
for number in range(3):
    job = Job(f"job-{number}", 0.0, (Option(Shape("V100", 4, "node"), 1.0),), steps_total=3600.0)
    scheduler.handle(JobSubmitted(0.0, job))
for command in scheduler.handle(Tick(0.0)).commands:
    print(command)
    scheduler.handle(JobStarted(0.0, command.job_ids[0], command.epoch))
print("job-2:", scheduler.why("job-2"))
