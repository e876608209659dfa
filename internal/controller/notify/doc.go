// Package notify sends and receives notifications and confirmations. A notification is a UDP datagram that makes the
// receiver read the queue, but does not itself contain any information about the queue. The watcher sends notifications
// to the agents, and the agents send them to the watcher. Each receives them on its host's UDP port wake_port
// (Listener) and, if wake_address is set, only on that address. Notifications can be lost.
//
// A watcher that makes plans also sends confirmations. A confirmation is a datagram with a text, which contains a
// digest of the node's record (part.Confirmation). If the agent last read the same record, it omits its polls.
//
// A datagram contains the sender's name, the receiver's name, a time, in a confirmation also the text, and an
// HMAC-SHA256 computed with the site's key or, without a key file, with the sender's session key. A receiver accepts a
// datagram only once, and only if all of the following conditions are met:
//
//   - The MAC is correct, and the datagram names this receiver.
//   - The time in the datagram differs from the receiver's clock by at most 30 seconds. It is also later than both the
//     start of the receiver and the time in the sender's previous datagram.
//   - The datagram comes from one of the sender's addresses.
//
// A captured datagram therefore has no effect after its first arrival, and with a key, a forged datagram costs the
// receiver only the computation of one MAC. If the clocks differ by more than 30 seconds, receivers reject all
// datagrams, and agents rely on polling. If a receiver's clock is set back by more than 30 seconds, the receiver
// forgets the times of earlier datagrams that are in the future then; when its clock reaches such a time again, it
// accepts the datagram once more.
//
// A session key is random. Each datagram of a session contains the munge credential that carries the key and that only
// the receiver's user can decode, so a receiver needs no earlier datagram, and decodes the credential only once. The
// sender creates a new session every half hour. With a new credential in each datagram, a receiver would have to limit
// the datagrams that it opens, because decoding is expensive, and a flood of forged ones would displace the genuine
// ones. A receiver decodes an unknown credential only if it has the right form and is not compressed, and if the
// datagram meets all other conditions, at most ten times per second after a burst. The notification port of each
// address has a limit of once per ten seconds after a burst, because users can send from this port while no daemon
// listens on it. Datagrams from other ports, from which users can always send, have a limit of their own.
//
// The package also limits the reactions to datagrams: at most 20 in a burst, and then two per second. The pause between
// reactions doubles for as long as the reactions do not change anything.
//
// Files:
//
//	notify.go    Sender, Listener; the reasons for rejecting datagrams; limits on reactions (burst, every) and pauses
//	addresses.go looks up the addresses of hosts, and keeps them for a minute (lookupAge); latest, for senders
//	datagram.go  the format of a datagram (magic, maxLength), its MAC, the accepted clock difference (window)
//	auth.go      what authenticates datagrams: munge or the key file
//	session.go   session keys (renewal), and the limits on decodings of munge credentials (decodeEvery, addressEvery)
//	munge.go     calls munge and unmunge (mungeTimeout, mungePause)
//	key.go       the key file: its owner, mode and length (minKey, maxKey); the errors and their remedies
package notify
