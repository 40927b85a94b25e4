from django_settings import *

PGQUEUE = {"IMMEDIATE": True, "IMMEDIATE_ERRORS": "log"}
