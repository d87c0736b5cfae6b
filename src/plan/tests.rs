//! The planner's tests: stories by topic, and properties of whole worlds.
//!
//! A story builds a world with verbs ([`world`]), and compares the plan's text ([`text`]). Each world that is planned is
//! also executed ([`execute`]) and planned again: that must change nothing.

mod demand;
mod drains;
mod execute;
mod machine;
mod orphans;
mod outages;
mod properties;
mod retiring;
mod room;
mod scale_up;
mod stopped;
mod task;
mod text;
mod trouble;
mod world;
mod worlds;
