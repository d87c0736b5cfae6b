//! The event stream: a hint that the queue may have changed, never the truth.
//!
//! Only whether a line begins with `data:` matters, so no line is kept: the memory is the same for every line length.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tokio::time::Instant;

use super::error::Error;
use super::http::Call;

/// An open event stream.
pub struct Events {
    call: Call,
    response: Response,
    silence: Duration,
    /// When the last byte came.
    heard: Instant,
    lines: Lines,
    /// Events that were read and not yet told.
    untold: usize,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("call", &self.call.to_string()).finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn new(call: Call, response: Response, silence: Duration) -> Result<Self, Error> {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no type");
        if !kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
            let kind: String = kind.chars().take(50).collect();
            return Err(call.unavailable(Some(status.as_u16()), format!("{status} with {kind}, not an event stream")));
        }
        Ok(Self { call, response, silence, heard: Instant::now(), lines: Lines::default(), untold: 0 })
    }

    /// Returns at each event. May be dropped and called again without losing one.
    ///
    /// # Errors
    ///
    /// The stream ended, broke, or was silent (not even a ping) for too long: open it again, after a pause.
    pub async fn next(&mut self) -> Result<(), Error> {
        while self.untold == 0 {
            // Measured from the last byte, so that a caller who asks again and again does not put it off.
            let chunk = tokio::time::timeout_at(self.heard + self.silence, self.response.chunk())
                .await
                .map_err(|_| {
                    self.call.unavailable(None, format!("the event stream was silent for {:?}", self.silence))
                })?
                .map_err(|_| self.call.unavailable(None, "the event stream broke"))?
                .ok_or_else(|| self.call.unavailable(None, "the event stream ended"))?;
            self.heard = Instant::now();
            self.untold = self.lines.feed(&chunk);
        }
        self.untold -= 1;
        Ok(())
    }
}

const FIELD: &[u8] = b"data:";

/// Finds lines that begin with `data:` in bytes that come in pieces.
#[derive(Debug, Default)]
struct Lines {
    matched: Matched,
}

/// How much of `data:` the current line has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Matched {
    /// Its first bytes, and nothing else yet.
    Bytes(usize),
    /// All of it, or something else: the rest of the line does not matter.
    Decided,
}

impl Default for Matched {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl Lines {
    /// How many events begin in these bytes. A line ends in CR, LF or both.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut events = 0;
        for &byte in bytes {
            self.matched = match self.matched {
                _ if byte == b'\n' || byte == b'\r' => Matched::Bytes(0),
                Matched::Bytes(count) if byte == FIELD[count] && count + 1 == FIELD.len() => {
                    events += 1;
                    Matched::Decided
                }
                Matched::Bytes(count) if byte == FIELD[count] => Matched::Bytes(count + 1),
                Matched::Bytes(_) | Matched::Decided => Matched::Decided,
            };
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = include_bytes!("../../tests/fixtures/woodpecker-3.17/events.txt");

    #[test]
    fn events_are_counted_however_the_bytes_are_cut() {
        for size in 1..100 {
            let mut lines = Lines::default();
            let count: usize = STREAM.chunks(size).map(|piece| lines.feed(piece)).sum();
            assert_eq!(count, 2, "pieces of {size}");
        }
    }

    #[test]
    fn only_lines_that_begin_with_data_are_events() {
        for (text, count) in [
            ("data: {}\n\n", 1),
            ("data:{}\r\n\r\ndata: x\r\n\r\n", 2),
            ("data: a\rdata: b\r", 2),
            (": ping\n\n: data: x\n\n", 0),
            (" data: x\nxdata: y\ndatum: z\n", 0),
            ("event: data:\nid: data:\n", 0),
            ("data: data: data:\n", 1),
            ("data\n:", 0),
            ("dat\na:\n", 0),
            ("data:", 1),
        ] {
            assert_eq!(Lines::default().feed(text.as_bytes()), count, "{text:?}");
        }
    }
}
