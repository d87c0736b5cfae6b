//! Tests of the world itself, through its sockets where it is about HTTP.
