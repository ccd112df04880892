"""``kohort demo``: a group of Spark applications loses a member, gains one, and loses no record.

What lives here, from pure to not: ``web_events`` makes records; ``picture`` says what can be seen
at one moment; ``script`` decides from pictures what happens next; ``rebalances`` computes costs;
``verdict`` words the end. ``feeder``, ``processes``, ``observing`` and ``stage`` touch the machine;
``view`` draws; ``command`` is the noun. Nothing outside of this folder may import it.
"""
