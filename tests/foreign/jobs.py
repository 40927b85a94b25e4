raise AssertionError("a name out of the database has had this imported")
