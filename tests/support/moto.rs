//! A running `moto_server` (`pip install 'moto[server,ec2]'`): EC2's real wire protocol. Used by the tests of the library
//! and by those of the program.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server of its own; ends with the test.
pub struct Moto {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub address: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    /// `None`, and a line that says so: it is not installed here. With `REQUIRE_MOTO` set that is a failure.
    pub async fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let started = Command::new("moto_server")
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match started {
            Ok(child) => child,
            Err(error) => {
                let required = std::env::var_os("REQUIRE_MOTO").is_some();
                assert!(!required, "moto_server can't be started: {error}");
                eprintln!("skipped: moto_server is not installed (pip install 'moto[server,ec2]'): {error}");
                return None;
            }
        };
        let moto = Self { child, address: format!("http://127.0.0.1:{port}") };
        for _ in 0..600 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Some(moto);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("moto_server does not answer");
    }
}
