"""Layer 7. Pages of groups: the script that draws a group, the dashboard that serves it live.

In: pictures of groups (``kohort.explain.pages.picture``). Out: pages, and events for browsers. Must
not know: how groups are read. Only `app` needs the extra ``dashboard``.
"""
