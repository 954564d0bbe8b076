use hsmux_token::Kind;

use super::*;

fn pair() -> (ServiceLink, ServiceLink) {
    let (daemon, service) = ServiceLink::pair().unwrap();
    (daemon, ServiceLink::of_service(service))
}

fn web1() -> ServiceClient {
    ServiceClient::Host {
        name: "web1".into(),
        from: "192.0.2.1:7".into(),
    }
}

#[test]
fn a_service_hears_the_whole_configuration_and_the_end() {
    let (daemon, service) = pair();
    let long = "# a line of a large file\n".repeat(50_000);
    daemon
        .tell(&ToService::Configuration(long.clone()))
        .unwrap();
    daemon.tell(&ToService::StopListening).unwrap();
    let heard = service.hear().unwrap();
    assert!(matches!(heard, ToService::Configuration(text) if text == long));
    assert!(matches!(service.hear().unwrap(), ToService::StopListening));
    drop(daemon);
    let end = service.hear().unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn the_end_is_the_same_with_packets_that_were_not_read() {
    let (daemon, service) = pair();
    service.report(FromService::Ready).unwrap();
    for _ in 0..3 {
        daemon.tell(&ToService::StopListening).unwrap();
    }
    drop(daemon);
    for _ in 0..3 {
        assert!(matches!(service.hear().unwrap(), ToService::StopListening));
    }
    let end = service.hear().unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn the_daemon_is_given_a_connection_with_its_name() {
    let (daemon, service) = pair();
    let (mut near, connection) = UnixStream::pair().unwrap();
    service
        .report(FromService::Connect {
            client: web1(),
            connection,
        })
        .unwrap();
    let FromService::Connect { client, connection } = daemon.attend().unwrap() else {
        panic!("something else");
    };
    assert_eq!(client, web1());
    near.write_all(b"x").unwrap();
    let mut byte = [0];
    (&connection).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn a_listening_socket_goes_to_the_daemon_and_back() {
    let (daemon, service) = pair();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listens = FromService::Listens(ListeningSocket {
        name: "listen 127.0.0.1:0".into(),
        socket: listener.into(),
    });
    service.report(listens).unwrap();
    let FromService::Listens(kept) = daemon.attend().unwrap() else {
        panic!("something else");
    };
    daemon.tell(&ToService::Socket(kept)).unwrap();
    daemon.tell(&ToService::HandOver).unwrap();
    let ToService::Socket(given) = service.hear().unwrap() else {
        panic!("something else");
    };
    assert_eq!(given.name, "listen 127.0.0.1:0");
    let given = std::net::TcpListener::from(given.socket);
    assert_eq!(given.local_addr().unwrap(), address);
    assert!(matches!(service.hear().unwrap(), ToService::HandOver));
    // A packet without its socket.
    service.send(&Packet::Listens("x".into()), &[]).unwrap();
    let refused = daemon.attend().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
}

#[test]
fn who_does_not_listen_holds_nobody_up_and_nonsense_ends_the_link() {
    let (daemon, service) = pair();
    let full = (0..1_000_000).find_map(|_| service.report(FromService::Ready).err());
    assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
    let (daemon_too, service_too) = pair();
    // What only the daemon says; a call without its descriptor; bytes that are no packet.
    service_too.send(&Packet::StopListening, &[]).unwrap();
    service_too.send(&Packet::Connect(web1()), &[]).unwrap();
    send(&service_too.0, b"\xff", &[], SendFlags::empty()).unwrap();
    let long = vec![0; LONGEST + 1];
    send(&service_too.0, &long, &[], SendFlags::empty()).unwrap();
    for _ in 0..4 {
        let refused = daemon_too.attend().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    }
    assert!(matches!(daemon.attend().unwrap(), FromService::Ready));
}

#[test]
fn events_and_their_results_keep_their_numbers() {
    let (daemon, service) = pair();
    let event = vec![0xff; ServiceLink::LONGEST_EVENT];
    for kind in [
        RecordKind::Event,
        RecordKind::Announce(u64::MAX),
        RecordKind::Commit(7),
    ] {
        service
            .report(FromService::Record {
                event: event.clone(),
                kind,
            })
            .unwrap();
        let FromService::Record {
            event: sent,
            kind: asked,
        } = daemon.attend().unwrap()
        else {
            panic!("something else");
        };
        assert_eq!((sent, asked), (event.clone(), kind));
    }
    let error = Error::pool(Kind::Environment, "no space");
    let message = error.to_string();
    for result in [Ok(()), Err(error)] {
        let expected = result.as_ref().err().map(|_| message.clone());
        daemon
            .tell(&ToService::Recorded { number: 9, result })
            .unwrap();
        let ToService::Recorded { number: 9, result } = service.hear().unwrap() else {
            panic!("something else");
        };
        assert_eq!(result.err().map(|error| error.to_string()), expected);
    }
    let longer = vec![0; LONGEST];
    let kind = RecordKind::Event;
    let refused = service.report(FromService::Record {
        event: longer,
        kind,
    });
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// An end of another version refuses a packet whose number it does not know.
#[test]
fn no_two_packets_have_one_number() {
    let error = Error::pool(Kind::Environment, "no space");
    let packets = [
        Packet::Configuration,
        Packet::StopListening,
        Packet::Ready,
        Packet::Failed(error.clone()),
        Packet::Connect(web1()),
        Packet::Refused(String::new(), String::new(), String::new()),
        Packet::Trouble(None),
        Packet::Record(Vec::new(), RecordKind::Event),
        Packet::Recorded(1, Some(error)),
        Packet::Socket(String::new()),
        Packet::Listens(String::new()),
        Packet::HandOver,
    ];
    for (number, packet) in (0..).zip(packets) {
        let bytes = minicbor::to_vec(&packet).unwrap();
        assert_eq!(bytes[..2], [0x82, number], "{number}");
    }
    let unknown = minicbor::decode::<Packet>(&[0x82, 12, 0x80]);
    assert!(unknown.is_err_and(|error| error.is_unknown_variant()));
}

#[test]
fn who_waits_for_room_has_it_when_the_other_reads_or_goes() {
    let (daemon, service) = pair();
    assert!(service.wait_for_room(Duration::ZERO).unwrap());
    while service.report(FromService::Ready).is_ok() {}
    assert!(!service.wait_for_room(Duration::ZERO).unwrap());
    let reader = std::thread::spawn(move || {
        while service.wait_for_room(Duration::from_secs(30)).unwrap() {
            if let Err(error) = service.report(FromService::Ready) {
                return error.kind();
            }
        }
        panic!("no room");
    });
    for _ in 0..1000 {
        daemon.attend().unwrap();
    }
    drop(daemon);
    let end = reader.join().unwrap();
    let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    assert!(gone.contains(&end), "{end}");
}

#[test]
fn a_configuration_of_16_mib_is_the_longest() {
    let (daemon, service) = pair();
    let mut text = "#".repeat(LONGEST_TEXT as usize);
    daemon
        .tell(&ToService::Configuration(text.clone()))
        .unwrap();
    let heard = service.hear().unwrap();
    assert!(matches!(heard, ToService::Configuration(heard) if heard == text));
    text.push('#');
    daemon.tell(&ToService::Configuration(text)).unwrap();
    let error = service.hear().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_text_that_could_still_change_is_not_believed() {
    let (daemon, service) = pair();
    let file = tempfile::tempfile().unwrap();
    daemon
        .send(&Packet::Configuration, &[file.as_fd()])
        .unwrap();
    assert!(service.hear().is_err());
}
