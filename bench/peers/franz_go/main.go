// One reading with franz-go, for the benchmarks: like bench/readers.py, it prints one line of JSON.
//
//	franz_go BOOTSTRAP TOPIC RECORDS PARTITIONS
//
// Records are counted per fetched partition, nothing is done with any of them. CRCs are checked, as by default.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type reading struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Records int     `json:"records"`
}

func main() {
	// Its fastest configuration, by trying: answers of 4 MiB, and a garbage collector that is given four times the memory, which
	// saves a third of the processor time. Pools would want a call for every record.
	debug.SetGCPercent(400)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("four arguments are needed, not %d", len(arguments))
	}
	bootstrap, topic := strings.Split(arguments[0], ","), arguments[1]
	records, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	partitions, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.FetchMaxBytes(64<<20),
		kgo.BrokerMaxReadBytes(128<<20),
		kgo.FetchMaxPartitionBytes(4<<20),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	offsets := make(map[int32]kgo.Offset, partitions)
	for partition := range partitions {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}

	cpu, begun, read := cpuSeconds(), time.Now(), 0
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets})
	for read < records {
		fetches := client.PollFetches(ctx)
		if errors := fetches.Errors(); len(errors) > 0 {
			return fmt.Errorf("%s-%d: %w", errors[0].Topic, errors[0].Partition, errors[0].Err)
		}
		fetches.EachPartition(func(partition kgo.FetchTopicPartition) { read += len(partition.Records) })
	}
	return json.NewEncoder(os.Stdout).Encode(reading{time.Since(begun).Seconds(), cpuSeconds() - cpu, read})
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
