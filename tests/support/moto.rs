//! A running `moto_server` (`pip install 'moto[server,ec2]'`): EC2's real wire protocol. Used by the tests of the library
//! and by those of the program.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_ec2::types::{ArchitectureValues, Tag};

/// The secret part of the key with which moto is asked; it takes any.
pub const KEY: &str = "key-that-nobody-may-see";

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

    /// EC2's API itself, for what a test must make or see.
    pub fn client(&self) -> Client {
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("AKIDEXAMPLE", KEY, None, None, "test"))
            .endpoint_url(&self.address)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .build();
        Client::from_conf(config)
    }

    /// An image that moto knows, for x86.
    pub async fn image(&self) -> String {
        let images = self.client().describe_images().owners("amazon").send().await.expect("images");
        let x86 = images.images().iter().find(|image| image.architecture() == Some(&ArchitectureValues::X8664));
        x86.and_then(|image| image.image_id()).expect("an image").to_owned()
    }

    /// A running machine that somebody else made.
    pub async fn machine(&self, name: &str) -> String {
        let ec2 = self.client();
        let run = ec2.run_instances().image_id(self.image().await).instance_type("t3.small".into());
        let made = run.min_count(1).max_count(1).send().await.expect("an instance");
        let id = made.instances()[0].instance_id().expect("an id").to_owned();
        let tag = Tag::builder().key("Name").value(name).build();
        ec2.create_tags().resources(&id).tags(tag).send().await.expect("a tag");
        id
    }
}
