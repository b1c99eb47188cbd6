//! Whether the configured addresses can be bound.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use headworks_gateway::GatewayConfig;
use headworks_service::admin::AdminConfig;
use headworks_service::config::Config;
use headworks_tracker::TrackerConfig;

use super::finding::Finding;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let tracker = config.section::<TrackerConfig>();
    let mut findings = vec![
        tcp("gateway.listen", config.section::<GatewayConfig>().listen),
        tcp("admin.listen", config.section::<AdminConfig>().listen),
    ];
    let http = tracker.listen.addresses().iter();
    findings.extend(http.map(|address| tcp("tracker.listen", *address)));
    let udp = tracker.udp_listen.addresses().iter();
    findings.extend(udp.map(|address| {
        let subject = format!("tracker.udp_listen {address} (UDP)");
        bound(subject, *address, UdpSocket::bind(address).map(drop))
    }));
    findings
}

fn tcp(key: &str, address: SocketAddr) -> Finding {
    let subject = format!("{key} {address}");
    bound(subject, address, TcpListener::bind(address).map(drop))
}

fn bound(subject: String, address: SocketAddr, result: std::io::Result<()>) -> Finding {
    let Err(error) = result else {
        return Finding::ok(subject, "free");
    };
    match error.kind() {
        // A running instance holds its own addresses, so this is not a problem yet.
        ErrorKind::AddrInUse => Finding::warning(subject, "in use").advise(format!(
            "if it is not Headworks that runs there, choose another port; \
             `ss -lntup | grep :{}` names the program",
            address.port()
        )),
        ErrorKind::PermissionDenied => Finding::problem(subject, "permission denied").advise(
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; `process.user` drops root \
             after the start",
        ),
        ErrorKind::AddrNotAvailable => Finding::problem(subject, "not an address of this machine")
            .advise("`ip address` lists the addresses of this machine"),
        _ => Finding::problem(subject, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn a_port_is_free_in_use_or_elsewhere() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(tcp("a", address).state, Severity::Warning);
        drop(taken);
        assert_eq!(tcp("a", address).state, Severity::Ok);
        let elsewhere = tcp("a", "192.0.2.1:80".parse().unwrap());
        assert_eq!(elsewhere.state, Severity::Problem);
        assert!(elsewhere.found.contains("not an address"), "{elsewhere}");
    }
}
