"""A function that a client of a cluster sends by its name."""


def double(job):
    return 2 * job
