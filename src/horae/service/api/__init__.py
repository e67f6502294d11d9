"""The API process reads the tables and hands requests to the loop by the inbox. It never runs the scheduler."""
