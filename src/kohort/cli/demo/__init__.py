"""``kohort demo``: a group of Spark applications loses a member, gains one, and loses no record.

``story`` decides what happens next; ``running`` and ``processes`` carry it out; ``observer`` reads
what happened from recorded facts into a ``picture``; ``view`` draws it. ``feeder`` produces the
records, ``outcome`` words the result, ``command`` is the command line.
"""
