# SPDX-License-Identifier: GPL-2.0
"""The analyser of captures against captures made by hand: one rule a test."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import dpkt
import pytest
import wire
from wire import ACK, FIN, SYN, Limits, Segment, WireStall

MS = 1_000_000
CLIENT, SERVER = 40000, 8000
MSS = 1448
PAYLOAD_KEPT = 20


class Hand:
    """A capture made by hand: segments of one connection, at times in ms, with sequence numbers that may wrap."""

    def __init__(self, path: Path, family: int = 4, isn: int = 1000, nano: bool = True, link: int = 1,
                 ip_options: bytes = b"") -> None:
        self.path, self.family, self.isn, self.nano = path, family, isn, nano
        self.link, self.ip_options = link, ip_options
        self.packets: list[tuple[float, bytes]] = []

    def add(self, at_ms: float, sender: int, seq: int, ack: int, length: int = 0, flags: int = ACK, window: int = 501,
            options: bytes = b"") -> Hand:
        """seq and ack are relative, as wire.Segment has them."""
        receiver = SERVER if sender == CLIENT else CLIENT
        tcp = dpkt.tcp.TCP(sport=sender, dport=receiver, seq=(seq + self.isn) % 2**32,
                           ack=(ack + self.isn) % 2**32 if flags & ACK else 0, flags=flags, win=window)
        tcp.opts = options + b"\x01" * (-len(options) % 4)
        tcp.off = (20 + len(tcp.opts)) // 4
        tcp.data = b"x" * length
        raw = bytes(tcp)
        if self.family == 4:
            ends = [socket.inet_aton(a) for a in ("192.0.2.1", "192.0.2.2")]
            header = 20 + len(self.ip_options)
            packet = struct.pack("!BBHHHBBH", 0x40 | header // 4, 0, header + len(raw), 0, 0, 64, 6, 0)
            kind = 0x0800
        else:
            ends = [socket.inet_pton(socket.AF_INET6, a) for a in ("2001:db8::1", "2001:db8::2")]
            packet = struct.pack("!IHBB", 6 << 28, len(raw), 6, 64)
            kind = 0x86DD
        packet += b"".join(ends if sender == CLIENT else ends[::-1])
        packet += (self.ip_options if self.family == 4 else b"") + raw
        before = bytes(12) + struct.pack("!H", kind) if self.link == 1 else struct.pack("!H", kind) + bytes(18)
        frame = before + packet
        self.packets.append((at_ms, frame[:len(frame) - length + min(length, PAYLOAD_KEPT)]))
        return self

    def shake(self, at_ms: float = 0.0) -> Hand:
        scale = b"\x03\x03\x07"
        self.add(at_ms, CLIENT, 0, 0, flags=SYN, window=64240, options=scale)
        self.add(at_ms + 0.1, SERVER, 0, 1, flags=SYN | ACK, window=65160, options=scale)
        return self.add(at_ms + 0.2, CLIENT, 1, 1)

    def segments(self) -> list[Segment]:
        with open(self.path, "wb") as file:
            writer = dpkt.pcap.Writer(file, nano=self.nano, linktype=self.link)
            for at_ms, frame in self.packets:
                writer.writepkt_time(frame, 1_700_000_000 + at_ms / 1000)
        return wire.read(self.path)


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path / "hand.pcap")


def ends(family: int = 4) -> tuple[str, str]:
    return (f"192.0.2.1:{CLIENT}", f"192.0.2.2:{SERVER}") if family == 4 else \
        (f"[2001:db8::1]:{CLIENT}", f"[2001:db8::2]:{SERVER}")


def stalls(segments: list[Segment], there: list[Segment] | None = None, limits: Limits = Limits(),
           family: int = 4) -> list[WireStall]:
    client, server = ends(family)
    return wire.stalls(segments, segments if there is None else there, client, server, MSS, limits)


def textbook(hand: Hand, ack_ms: float = 51.0, left_ms: float = 51.05, first: int = 6, second: int = 7) -> Hand:
    """Two small writes; the first is acknowledged late, by a pure ACK, and the second leaves upon it."""
    hand.shake()
    hand.add(10.0, CLIENT, 1, 1, first)
    hand.add(ack_ms, SERVER, 1, 1 + first)
    return hand.add(left_ms, CLIENT, 1 + first, 1, second)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("nano", [True, False])
def test_the_textbook_stall_is_found_with_its_times(tmp_path: Path, family: int, nano: bool) -> None:
    hand = textbook(Hand(tmp_path / "hand.pcap", family=family, nano=nano))
    (stall,) = stalls(hand.segments(), family=family)
    assert (stall.sender, stall.receiver) == ends(family)
    assert (stall.offset, stall.length) == (6, 7)
    assert stall.pending == pytest.approx(41 * MS, abs=2000)
    assert stall.waited == pytest.approx(41.05 * MS, abs=2000)
    assert stall.left - stall.ack_came == pytest.approx(0.05 * MS, abs=2000)


def test_a_prompt_ack_is_no_stall(hand: Hand) -> None:
    assert stalls(textbook(hand, ack_ms=10.2, left_ms=10.3).segments()) == []
    assert stalls(textbook(Hand(hand.path), ack_ms=39.9, left_ms=39.95).segments()) == []


def test_an_ack_that_carries_data_is_no_stall(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7, 20).add(51.05, CLIENT, 7, 21, 7)
    assert stalls(hand.segments()) == []


def test_what_leaves_long_after_the_ack_was_not_released_by_it(hand: Hand) -> None:
    assert stalls(textbook(hand, left_ms=53.1).segments()) == []
    assert len(stalls(hand.segments(), limits=Limits(at_once=3 * MS))) == 1


def test_a_full_segment_was_not_held_for_its_size(hand: Hand) -> None:
    assert stalls(textbook(hand, second=MSS).segments()) == []


def test_the_tail_behind_a_full_segment_is_not_released_by_the_ack(hand: Hand) -> None:
    textbook(hand, second=MSS).add(51.06, CLIENT, 7 + MSS, 1, 100)
    assert stalls(hand.segments()) == []


def test_the_tail_behind_a_full_segment_is_found_where_captures_come_late(hand: Hand) -> None:
    """With other prompt ACKs between too, but no longer than at_once, and only the first tail."""
    behind = Limits(behind=True)
    textbook(hand, second=MSS).add(51.10, SERVER, 1, 7 + MSS).add(51.15, CLIENT, 7 + MSS, 1, 100)
    (stall,) = stalls(hand.segments(), limits=behind)
    assert (stall.offset, stall.length, stall.behind) == (6 + MSS, 100, True)
    hand.add(51.20, SERVER, 1, 107 + MSS).add(51.25, CLIENT, 107 + MSS, 1, 100)
    assert stalls(hand.segments(), limits=behind) == [stall]
    late = textbook(Hand(hand.path), second=MSS).add(53.1, CLIENT, 7 + MSS, 1, 100)
    assert stalls(late.segments(), limits=behind) == []


def test_the_tail_behind_another_ack_is_found_where_captures_come_late(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(49, CLIENT, 7, 1, MSS).add(51, SERVER, 1, 7)
    hand.add(51.05, SERVER, 1, 7 + MSS).add(51.1, CLIENT, 7 + MSS, 1, 100)
    assert stalls(hand.segments()) == []
    (stall,) = stalls(hand.segments(), limits=Limits(behind=True))
    assert (stall.offset, stall.behind) == (6 + MSS, True)


def test_a_long_way_is_found_in_either_direction(hand: Hand) -> None:
    here = textbook(hand).segments()
    there = [replace(s, time=s.time + (5 * MS if s.length == 6 else MS) * (1 if s.source == ends()[0] else -1))
             for s in here]
    assert [came - left for left, came in wire.long_ways(here, there, 4 * MS)] == [5 * MS]
    assert wire.long_ways(here, there, 5 * MS) == []
    assert len(wire.long_ways(there, here, MS // 2)) == len(here)


def test_a_late_ack_behind_a_full_segment_releases_for_itself(hand: Hand) -> None:
    textbook(hand, second=MSS).add(92.0, SERVER, 1, 7 + MSS).add(92.05, CLIENT, 7 + MSS, 1, 100)
    (stall,) = stalls(hand.segments(), limits=Limits(behind=True, at_once=50 * MS))
    assert (stall.offset, stall.behind) == (6 + MSS, False)


def test_a_retransmission_explains_the_delay(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(45, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7).add(51.05, CLIENT, 7, 1, 7)
    assert stalls(hand.segments()) == []


def test_selective_acknowledgement_tells_of_loss(hand: Hand) -> None:
    sack = b"\x05\x0a" + bytes(8)
    hand.shake().add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7, options=sack).add(51.05, CLIENT, 7, 1, 7)
    assert stalls(hand.segments()) == []


def test_a_duplicate_ack_releases_nothing(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(10.1, SERVER, 1, 7).add(51, SERVER, 1, 7).add(51.05, CLIENT, 7, 1, 7)
    assert stalls(hand.segments()) == []


def test_a_late_ack_seen_twice_releases_once(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7).add(80, SERVER, 1, 7).add(80.05, CLIENT, 7, 1, 7)
    assert stalls(hand.segments()) == []
    assert stalls(hand.segments(), limits=Limits(at_once=10 * MS)) == []


def test_data_behind_a_late_ack_releases_for_its_own_sake(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7).add(80, SERVER, 1, 7, 20).add(80.05, CLIENT, 7, 21, 7)
    assert stalls(hand.segments()) == []


def test_windows_are_scaled(hand: Hand) -> None:
    hand.shake().add(9, SERVER, 1, 1, window=1).add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7)
    assert len(stalls(hand.add(51.05, CLIENT, 7, 1, 7).segments())) == 1


def test_a_window_that_was_closed_explains_the_delay(hand: Hand) -> None:
    hand.shake().add(9, SERVER, 1, 1, window=0).add(10, CLIENT, 1, 1, 6)
    hand.add(51, SERVER, 1, 7, window=501).add(51.05, CLIENT, 7, 1, 7)
    assert stalls(hand.segments()) == []


def test_two_small_segments_in_flight_mean_that_nagle_is_off(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(20, CLIENT, 7, 1, 6).add(51, SERVER, 1, 13).add(51.05, CLIENT, 13, 1, 7)
    assert stalls(hand.segments()) == []
    assert len(stalls(hand.segments(), limits=Limits(small=2))) == 1


def test_sequence_numbers_wrap(tmp_path: Path) -> None:
    hand = textbook(Hand(tmp_path / "hand.pcap", isn=2**32 - 4))
    (stall,) = stalls(hand.segments())
    assert (stall.offset, stall.length) == (6, 7)


def test_a_capture_that_began_later_takes_the_first_byte_it_sees(hand: Hand) -> None:
    hand.add(10, CLIENT, 5001, 1, 6).add(51, SERVER, 1, 5007).add(51.05, CLIENT, 5007, 1, 7)
    (stall,) = stalls(hand.segments())
    assert stall.offset == 6


def test_how_late_an_ack_is_is_measured_where_it_was_sent(tmp_path: Path) -> None:
    """80 ms of round trip: the sender waits for long either way."""
    here, there = Hand(tmp_path / "here.pcap"), Hand(tmp_path / "there.pcap")
    here.shake().add(100, CLIENT, 1, 1, 6).add(180, SERVER, 1, 7).add(180.05, CLIENT, 7, 1, 7)
    there.shake(40).add(140, CLIENT, 1, 1, 6).add(140.1, SERVER, 1, 7).add(220.05, CLIENT, 7, 1, 7)
    assert stalls(here.segments(), there.segments()) == []
    here, there = Hand(tmp_path / "here.pcap"), Hand(tmp_path / "there.pcap")
    here.shake().add(100, CLIENT, 1, 1, 6).add(221, SERVER, 1, 7).add(221.05, CLIENT, 7, 1, 7)
    there.shake(40).add(140, CLIENT, 1, 1, 6).add(181, SERVER, 1, 7).add(261.05, CLIENT, 7, 1, 7)
    (stall,) = stalls(here.segments(), there.segments())
    assert stall.pending == pytest.approx(41 * MS, abs=2000)
    assert stall.answered == pytest.approx(80.05 * MS, abs=2000)


def test_lengths_are_the_packets_not_what_was_kept_of_them(hand: Hand) -> None:
    segments = hand.shake().add(10, CLIENT, 1, 1, 1400).segments()
    assert segments[-1].length == 1400


def test_each_direction_is_its_own(hand: Hand) -> None:
    hand.shake().add(10, SERVER, 1, 1, 6).add(51, CLIENT, 1, 7).add(51.05, SERVER, 7, 1, 7)
    client, server = ends()
    segments = hand.segments()
    assert stalls(segments) == []
    assert len(wire.stalls(segments, segments, server, client, MSS)) == 1


def test_ports_that_are_used_again_begin_anew(hand: Hand) -> None:
    textbook(hand).add(60, CLIENT, 14, 1, flags=FIN | ACK)
    again = Hand(hand.path, isn=77_000_000)
    textbook(again)
    hand.packets += [(at + 100, frame) for at, frame in again.packets]
    assert [(s.offset, s.length) for s in stalls(hand.segments())] == [(6, 7), (6, 7)]


def test_connections_and_traffic(hand: Hand) -> None:
    segments = textbook(hand).add(60, CLIENT, 1, 1, 6).segments()
    client, server = ends()
    assert wire.connections(segments) == [(client, server)]
    sent = wire.traffic(segments, client, server)
    assert (sent.segments, sent.data_segments, sent.bytes, sent.retransmitted) == (5, 3, 19, 1)
    assert sent.wire_bytes == 44 + 40 + 46 + 47 + 46
    assert wire.traffic(segments, server, client).pure_acks == 1


@pytest.mark.parametrize("family", [4, 6])
def test_a_cooked_capture_is_read_as_well(tmp_path: Path, family: int) -> None:
    hand = textbook(Hand(tmp_path / "hand.pcap", family=family, link=276))
    assert len(stalls(hand.segments(), family=family)) == 1


def test_a_link_type_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="link type 113"):
        textbook(Hand(tmp_path / "hand.pcap", link=113)).segments()


def test_ip_options_are_no_payload(tmp_path: Path) -> None:
    segments = textbook(Hand(tmp_path / "hand.pcap", ip_options=b"\x01" * 8)).segments()
    assert [s.length for s in segments] == [0, 0, 0, 6, 0, 7]


def test_times_are_exact_to_the_nanosecond(hand: Hand) -> None:
    _, frame = hand.add(0, CLIENT, 1, 1, 6).packets[0]
    with open(hand.path, "wb") as file:
        dpkt.pcap.Writer(file, nano=True).writepkt_time(frame, Decimal("1700000000.123456789"))
    assert wire.read(hand.path)[0].time == 1_700_000_000_123_456_789


def test_pending_counts_from_the_earliest_data_acknowledged(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, MSS).add(30, CLIENT, 1 + MSS, 1, 6)
    hand.add(51, SERVER, 1, 7 + MSS).add(51.05, CLIENT, 7 + MSS, 1, 7)
    (stall,) = stalls(hand.segments())
    assert stall.pending == pytest.approx(41 * MS, abs=2000)


def test_what_is_sent_again_was_not_released(hand: Hand) -> None:
    """The late ACK is followed by a retransmission of what it did not acknowledge."""
    hand.shake().add(10, CLIENT, 1, 1, MSS).add(20, CLIENT, 1 + MSS, 1, 6).add(51, SERVER, 1, 1 + MSS)
    hand.add(51.05, CLIENT, 1 + MSS, 1, 6)
    assert stalls(hand.segments()) == []


def test_data_sent_again_together_with_new_data_tells_of_loss(hand: Hand) -> None:
    hand.shake().add(10, CLIENT, 1, 1, 6).add(45, CLIENT, 1, 1, 12)
    hand.add(80, SERVER, 1, 13).add(80.05, CLIENT, 13, 1, 7)
    assert stalls(hand.segments(), limits=Limits(small=2)) == []


def test_data_in_a_syn_was_not_sent_twice(hand: Hand) -> None:
    """TCP Fast Open: the SYN takes sequence number 0, its data begins at 1."""
    hand.add(0, CLIENT, 0, 0, 6, flags=SYN, window=64240).add(41, SERVER, 0, 1, flags=SYN | ACK, window=65160)
    hand.add(42, SERVER, 1, 7).add(42.05, CLIENT, 7, 1, 7)
    assert len(stalls(hand.segments())) == 1


def test_the_senders_own_data_is_what_is_looked_at(hand: Hand) -> None:
    """The receiver's data right after its own late ACK is no stall of the sender."""
    hand.shake().add(10, CLIENT, 1, 1, 6).add(51, SERVER, 1, 7).add(51.05, SERVER, 7, 7, 9)
    assert stalls(hand.segments()) == []


def test_windows_are_scaled_only_where_both_offer_it(hand: Hand) -> None:
    hand.add(0, CLIENT, 0, 0, flags=SYN, options=b"\x03\x03\x07").add(0.1, SERVER, 0, 1, flags=SYN | ACK)
    assert hand.add(0.2, CLIENT, 1, 1, window=501).segments()[-1].window == 501


def test_a_syns_own_window_is_not_scaled(hand: Hand) -> None:
    assert [s.window for s in hand.shake().segments()] == [64240, 65160, 501 << 7]


def test_small_segments_that_were_acknowledged_are_not_in_flight(hand: Hand) -> None:
    hand.shake()
    for i in range(3):
        hand.add(i + 1, CLIENT, 1 + 6 * i, 1, 6).add(i + 1.1, SERVER, 1, 7 + 6 * i)
    hand.add(10, CLIENT, 19, 1, 6).add(51, SERVER, 1, 25).add(51.05, CLIENT, 25, 1, 7)
    assert [s.offset for s in stalls(hand.segments())] == [24]


def test_without_its_syn_the_lowest_number_is_the_first_byte(hand: Hand) -> None:
    segments = hand.add(10, CLIENT, 5007, 1, 6).add(11, CLIENT, 5001, 1, 6).add(12, SERVER, 1, 5013).segments()
    assert [(s.seq, s.ack) for s in segments] == [(7, 1), (1, 1), (1, 13)]


def test_a_syn_begins_the_numbers_anew(hand: Hand) -> None:
    """Far behind the old connection's numbers, so that only a new ISN makes it 0."""
    hand.shake().add(1, CLIENT, 2**31 - 10, 1, 6).add(2, CLIENT, 2**32 - 20, 1, 6)
    again = Hand(hand.path, isn=5).shake(100)
    hand.packets += again.packets
    assert [(s.seq, s.ack) for s in hand.segments()[-3:]] == [(0, 0), (0, 1), (1, 1)]


def test_who_sent_the_syn_is_the_client(hand: Hand) -> None:
    client, server = ends()
    hand.add(0, SERVER, 0, 0, flags=SYN)
    assert wire.connections(hand.segments()) == [(server, client)]


def test_without_a_syn_the_lower_port_is_the_servers(hand: Hand) -> None:
    assert wire.connections(hand.add(0, SERVER, 1, 1, 6).segments()) == [ends()]


def rtt_ms(hand: Hand) -> float | None:
    found = wire.min_rtt(hand.segments(), *ends())
    return None if found is None else round(found / MS, 2)


def test_the_shortest_round_trip(hand: Hand) -> None:
    hand.add(0, CLIENT, 0, 0, flags=SYN)
    assert rtt_ms(hand) is None
    assert rtt_ms(hand.add(9, SERVER, 0, 1, flags=SYN | ACK)) == 9
    hand.add(10, CLIENT, 1, 1, 6).add(15, SERVER, 1, 7).add(20, CLIENT, 7, 1, 6)
    hand.add(21, SERVER, 1, 7).add(27, SERVER, 1, 13, 9)
    assert rtt_ms(hand) == 5


def test_what_was_sent_twice_tells_no_round_trip(hand: Hand) -> None:
    hand.add(0, CLIENT, 0, 0, flags=SYN).add(50, SERVER, 0, 1, flags=SYN | ACK)
    hand.add(60, CLIENT, 1, 1, 6).add(80, CLIENT, 1, 1, 6).add(81, SERVER, 1, 7)
    assert rtt_ms(hand) == 50


def test_round_trips_are_found_where_ports_are_used_again(hand: Hand) -> None:
    hand.add(0, CLIENT, 0, 0, flags=SYN).add(9, SERVER, 0, 1, flags=SYN | ACK).add(10, CLIENT, 1, 1, 6)
    hand.add(17, SERVER, 1, 7)
    again = Hand(hand.path, isn=77_000_000)
    again.add(100, CLIENT, 0, 0, flags=SYN).add(103, SERVER, 0, 1, flags=SYN | ACK)
    hand.packets += again.packets
    assert rtt_ms(hand) == 3
