#![doc = "net"]
