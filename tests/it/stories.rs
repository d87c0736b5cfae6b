//! Stories: the real loop lives against the modelled world, and at the end nothing unexplained is left in it.

mod absence;
mod faults;
mod launching;
mod pools;
mod printed;
mod reaction;
mod restarts;
mod retiring;
mod secrecy;
mod shared_secret;
mod shutdown;
mod start;
mod stopped;
mod trouble;
