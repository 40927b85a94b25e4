"""What any page of the admin is made of.

::

    bounded      pages that end: no query of theirs takes too long
    formatting   how values of a job are shown
    links        addresses of other pages
    crumbs       the way to a page
    sentences    what is said of a job, with links
    charts       what is drawn
"""
