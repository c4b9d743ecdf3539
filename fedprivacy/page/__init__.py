"""A page in the local browser: plan a run, audit a record, compare settings.

``server`` answers requests on 127.0.0.1, ``jobs`` runs each of them in a child process with limits,
and ``plan``, ``auditing`` and ``comparing`` compute the answers. The commands are in ``cli``.
"""
