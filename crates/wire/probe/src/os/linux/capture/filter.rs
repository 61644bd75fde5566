//! The receive filter, a program that the kernel runs on each frame (classic BPF, Linux
//! `Documentation/networking/filter.rst`).

use std::net::IpAddr;

use socket2::SockFilter;

const ETHERNET: u32 = crate::frame::ETHERNET_BYTES as u32;

/// Passes whole packets.
const ACCEPT: u32 = u32::MAX;

/// The Ethernet protocol of a host's packets.
pub(super) const fn protocol(remote: IpAddr) -> u16 {
    let protocol = if remote.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
    protocol as u16
}

/// Accepts packets from `remote`, and ICMP errors from any sender.
pub(super) fn from(remote: IpAddr) -> Vec<SockFilter> {
    match remote {
        IpAddr::V4(remote) => vec![
            load(ETHERNET + 12),
            equal(remote.to_bits(), 7, 0),
            load_byte(ETHERNET + 9),
            equal(1, 0, 6),
            // The length of the header, for options.
            statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, ETHERNET),
            statement(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, ETHERNET),
            equal(3, 2, 0),
            equal(11, 1, 0),
            equal(12, 0, 1),
            statement(libc::BPF_RET, ACCEPT),
            statement(libc::BPF_RET, 0),
        ],
        IpAddr::V6(remote) => {
            let mut program = Vec::new();
            for (nth, word) in (0..).zip(remote.octets().as_chunks::<4>().0) {
                program.push(load(ETHERNET + 8 + 4 * nth));
                let to_errors = 6 - 2 * nth as u8;
                program.push(equal(u32::from_be_bytes(*word), if nth == 3 { 4 } else { 0 }, to_errors));
            }
            program.extend([
                load_byte(ETHERNET + 6),
                equal(58, 0, 3),
                load_byte(ETHERNET + 40),
                // Errors have types below 128 (RFC 4443 section 2.1).
                jump(libc::BPF_JGE, 128, 1, 0),
                statement(libc::BPF_RET, ACCEPT),
                statement(libc::BPF_RET, 0),
            ]);
            program
        }
    }
}

const fn statement(code: u32, operand: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, operand)
}

const fn jump(condition: u32, operand: u32, if_so: u8, if_not: u8) -> SockFilter {
    SockFilter::new((libc::BPF_JMP | condition | libc::BPF_K) as u16, if_so, if_not, operand)
}

const fn equal(operand: u32, if_so: u8, if_not: u8) -> SockFilter {
    jump(libc::BPF_JEQ, operand, if_so, if_not)
}

const fn load(offset: u32) -> SockFilter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

const fn load_byte(offset: u32) -> SockFilter {
    statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
}
