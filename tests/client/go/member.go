// A member of a consumer group, of franz-go.
//
// In: arguments BOOTSTRAP GROUP TOPIC; the end of the input ends the member. Out: a line with the
// numbers of the assigned partitions, after each change.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var lock sync.Mutex
var mine = map[int32]bool{}

func changed(partitions map[string][]int32, owned bool) {
	lock.Lock()
	defer lock.Unlock()
	for _, numbers := range partitions {
		for _, number := range numbers {
			if owned {
				mine[number] = true
			} else {
				delete(mine, number)
			}
		}
	}
	words := []string{}
	for number := range mine {
		words = append(words, fmt.Sprint(number))
	}
	sort.Strings(words)
	fmt.Println(strings.Join(words, " "))
}

func main() {
	gain := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { changed(p, true) }
	lose := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { changed(p, false) }
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(50*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(gain),
		kgo.OnPartitionsRevoked(lose),
		kgo.OnPartitionsLost(lose),
	)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	for ctx.Err() == nil {
		client.PollFetches(ctx)
	}
	client.LeaveGroup()
}
