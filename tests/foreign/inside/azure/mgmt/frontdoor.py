"""Likewise."""


class FrontDoorManagementClient: ...
