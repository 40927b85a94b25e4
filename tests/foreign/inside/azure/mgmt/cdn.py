"""Stands for a package that the tests of Wagtail import: what they do with it fails with either backend."""


class CdnManagementClient: ...
