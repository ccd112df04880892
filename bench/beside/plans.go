// Measures franz-go's cooperative-sticky balancer for the group on standard input.
//
// Input, output and rounds are those of Plans.java. franz-go does not know racks: they are ignored.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	window = 8
	gain   = 0.98
)

type member struct {
	id     string
	topics []string
}

type plan = map[string]map[string][]int32

var balancer = kgo.CooperativeStickyBalancer()

func joined(members []member, owned plan) []kmsg.JoinGroupResponseMember {
	all := make([]kmsg.JoinGroupResponseMember, 0, len(members))
	for _, m := range members {
		generation := int32(-1)
		if owned[m.id] != nil {
			generation = 1
		}
		each := kmsg.NewJoinGroupResponseMember()
		each.MemberID = m.id
		each.ProtocolMetadata = balancer.JoinGroupMetadata(m.topics, owned[m.id], generation)
		all = append(all, each)
	}
	return all
}

func cpu() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func measure(state string, members []member, topics map[string]int32, owned plan, seconds float64) plan {
	group := joined(members, owned)
	var made plan
	leastCPU, leastWall := time.Duration(1<<62), time.Duration(1<<62)
	ends := time.Now().Add(time.Duration(seconds * 1e9))
	rounds, since := 0, 0
	for rounds == 0 || since < window && time.Now().Before(ends) {
		read, _, err := balancer.MemberBalancer(group)
		check(err)
		runtime.GC()
		startCPU, start := cpu(), time.Now()
		into, err := read.(kgo.GroupMemberBalancerOrError).BalanceOrError(topics)
		wall := time.Since(start)
		used := cpu() - startCPU
		check(err)
		made = into.(*kgo.BalancePlan).AsMemberIDMap()
		since++
		if float64(used) < float64(leastCPU)*gain {
			since = 0
		}
		leastCPU, leastWall = min(leastCPU, used), min(leastWall, wall)
		rounds++
	}
	fmt.Printf("%s %.2f %.2f %d %d\n",
		state, leastCPU.Seconds()*1e3, leastWall.Seconds()*1e3, moves(owned, made), rounds)
	return made
}

func moves(owned, made plan) int {
	lost := 0
	for id, topics := range owned {
		for topic, partitions := range topics {
			kept := make(map[int32]bool)
			for _, partition := range made[id][topic] {
				kept[partition] = true
			}
			for _, partition := range partitions {
				if !kept[partition] {
					lost++
				}
			}
		}
	}
	return lost
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	debug.SetGCPercent(400) // less time for new groups than with Go's default
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	check(err)
	topics := make(map[string]int32)
	var members, more []member
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<26)
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch words[0] {
		case "topic":
			topics[words[1]] = int32(len(words) - 2)
		case "member":
			members = append(members, member{words[1], strings.Split(words[3], ",")})
		case "more":
			more = append(more, member{words[1], strings.Split(words[3], ",")})
		default:
			check(fmt.Errorf("unknown line: %s", words[0]))
		}
	}
	check(input.Err())
	made := measure("full", members, topics, plan{}, seconds)
	measure("more", append(members, more...), topics, made, seconds)
}
