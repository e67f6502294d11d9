"""Commands that ask the service: `horae submit`, `ls`, `why`, and the like."""
