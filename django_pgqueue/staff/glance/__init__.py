"""The queue at a glance, in a terminal: how it stands, how it gets on, what is wrong.

::

    look      read it all, once and boundedly
    report    for programs
    table     for people: columns and rows
    fit       what of a table has room in a terminal
    paint     colours
    view      all that is shown, from top to bottom
    eye       look again and again, in a thread of its own
    screen    the terminal while it is ours, and what is typed meanwhile
    watch     show what the eye sees, until somebody has seen enough
"""
