// Command felt is one producer and one push consumer of the Go client with its default options: a synchronous send
// every -interval ms until the standard input ends, then only the consumer until SIGTERM.
//
// Each send and each received message is a line of JSON in -log: see tests/faults/felt/records.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const digits = 8 // of the number, at the beginning of each body

var (
	namesrv  = flag.String("namesrv", "", "address of the name server")
	topic    = flag.String("topic", "", "topic")
	group    = flag.String("group", "", "consumer group; the producer's group has the suffix -p")
	logFile  = flag.String("log", "", "file of the records")
	interval = flag.Int("interval", 20, "ms between the beginnings of two sends")
	size     = flag.Int("size", 256, "bytes of a body")
	timeout  = flag.Int("sendtimeout", 0, "ms; 0: the client's default")
)

// journal writes one line per record.
type journal struct {
	mutex sync.Mutex
	out   *os.File
}

func (j *journal) write(record map[string]any) {
	line, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if _, err := j.out.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func main() {
	flag.Parse()
	out, err := os.OpenFile(*logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	rlog.SetLogLevel("warn")
	check(rlog.SetOutputPath(*logFile + ".client"))
	records := &journal{out: out}
	servers := primitive.NewPassthroughResolver([]string{*namesrv})
	startConsumer(servers, records)
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(servers), producer.WithGroupName(*group+"-p"))
	check(err)
	check(sender.Start())
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		close(stop)
	}()
	fmt.Println("ready")
	produce(sender, records, stop)
	fmt.Println("stopped")
	select {}
}

func startConsumer(servers primitive.NsResolver, records *journal) {
	reader, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(servers), consumer.WithGroupName(*group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(reader.Subscribe(*topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			at := time.Now().UnixMicro()
			for _, message := range messages {
				number, err := strconv.Atoi(string(message.Body[:digits]))
				check(err)
				records.write(map[string]any{"got": number, "at": at, "id": message.MsgId, "offset": message.QueueOffset,
					"queue": message.Queue.QueueId, "broker": message.Queue.BrokerName, "again": message.ReconsumeTimes})
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(reader.Start())
}

func produce(sender rocketmq.Producer, records *journal, stop <-chan struct{}) {
	for number := 0; ; number++ {
		begin := time.Now()
		body := fmt.Sprintf("%0*d", digits, number)
		body += strings.Repeat(".", *size-len(body))
		result, err := send(sender, primitive.NewMessage(*topic, []byte(body)))
		record := map[string]any{"send": number, "at": begin.UnixMicro(), "us": time.Since(begin).Microseconds()}
		if err != nil {
			record["error"] = err.Error()
		} else {
			record["status"] = map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK",
				primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT", primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
				primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE"}[result.Status]
			record["id"], record["offset"] = result.MsgID, result.QueueOffset
			record["queue"], record["broker"] = result.MessageQueue.QueueId, result.MessageQueue.BrokerName
		}
		records.write(record)
		select {
		case <-stop:
			return
		case <-time.After(time.Until(begin.Add(time.Duration(*interval) * time.Millisecond))):
		}
	}
}

// send uses a context: 2.1.2 sends with a time-out of 3 s whatever WithSendMsgTimeout says.
func send(sender rocketmq.Producer, message *primitive.Message) (*primitive.SendResult, error) {
	if *timeout == 0 {
		return sender.SendSync(context.Background(), message)
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Duration(*timeout)*time.Millisecond)
	defer cancel()
	return sender.SendSync(limited, message)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
