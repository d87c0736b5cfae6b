//! The client against a server on loopback that misbehaves in the ways of servers and proxies.

mod answers;
mod failures;
mod paging;
mod server;
mod stream;
mod writes;
