"""Lists of jobs that cost the same whatever the size of their table.

::

    listing   the list: pages, windows, a count that stops
      keyset  read along an index
    filters   what a list can be narrowed by
      search  what is typed into its box
    ids       ids of jobs, as they stand in requests
"""
