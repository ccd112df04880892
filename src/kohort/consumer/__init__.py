"""Layer 4. The consumer's logic without IO.

Subscription, positions, commits, callbacks; holds a member.
"""
