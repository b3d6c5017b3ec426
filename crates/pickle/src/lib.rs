#![doc = "pickle"]
