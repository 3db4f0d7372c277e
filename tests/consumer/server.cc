// SPDX-License-Identifier: MIT
//
// A server that has the library inside: one thread, one epoll loop, many clients. It shows how an
// event loop that one already has takes the engine in: as one more descriptor.
//
//   c++ -std=c++17 -o server server.cc $(pkg-config --cflags --libs mainarch)
//   server CHECKPOINT SOCKET [SEQUENCES]
//
// A client connects to the Unix socket, sends "MAX_TOKENS TEMPERATURE SEED\n" and a prompt, and
// closes its sending side; the text comes as it is made, and then the end of the stream. An error
// is one line that begins with "error: ". Who goes away early frees its place; who reads slowly
// holds up nobody. SIGTERM ends the server.
//
// What is particular to the library:
//   - While a step is in flight the engine's other calls return BUSY. So what clients ask for is
//     only noted, and done between two steps (BetweenSteps).
//   - A step that nobody waits for any more is cancelled; sequences are as before it.
#include <fcntl.h>
#include <mainarch.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t kMaxRequest = 1 << 16;  // bytes

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "server: %s\n", what.c_str());
  std::exit(1);
}

void Must(mainarch_status status, const mainarch_error& error) {
  if (status < 0) Die(std::string(mainarch_status_string(status)) + ": " + error.message);
}

// unique_ptr of a handle.
template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
using Group = std::unique_ptr<mainarch_group, Destroyer<mainarch_group_destroy>>;
using Model = std::unique_ptr<mainarch_model, Destroyer<mainarch_model_destroy>>;
using Tokenizer = std::unique_ptr<mainarch_tokenizer, Destroyer<mainarch_tokenizer_destroy>>;
using Decoder = std::unique_ptr<mainarch_decoder, Destroyer<mainarch_decoder_destroy>>;
using Engine = std::unique_ptr<mainarch_engine, Destroyer<mainarch_engine_destroy>>;

struct Client {
  enum class State { kReading, kQueued, kRunning, kSending };
  State state = State::kReading;
  std::string request, reply;  // of the reply, what is still to be sent
  mainarch_sequence sequence = 0;
  Decoder decoder;
  bool gone = false;     // to be dropped between two steps
  bool watched = true;   // by epoll, ...
  uint32_t waiting = 0;  // ... which looks for this
};

class Server {
 public:
  Server(const char* checkpoint, const char* path, uint32_t sequences) {
    mainarch_error error;
    mainarch_group* group = nullptr;
    Must(mainarch_group_open(nullptr, nullptr, &group, &error), error);
    group_.reset(group);
    mainarch_model* model = nullptr;
    Must(mainarch_model_open(group, checkpoint, nullptr, &model, &error), error);
    model_.reset(model);
    mainarch_tokenizer* tokenizer = nullptr;
    Must(mainarch_tokenizer_from_model(model, &tokenizer, &error), error);
    tokenizer_.reset(tokenizer);
    mainarch_engine_options options = {};
    options.struct_size = sizeof(options);
    options.max_sequences = sequences;
    mainarch_engine* engine = nullptr;
    Must(mainarch_engine_create(model, &options, &engine, &error), error);
    engine_.reset(engine);

    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    engine_fd_ = mainarch_engine_event_fd(engine);
    Watch(EPOLL_CTL_ADD, engine_fd_, EPOLLIN);
    Watch(EPOLL_CTL_ADD, signals_ = Signals(), EPOLLIN);
    Watch(EPOLL_CTL_ADD, listener_ = Listen(path), EPOLLIN);
  }

  // What the engine has done, for whoever ends the server.
  void Report() const {
    mainarch_error error;
    mainarch_engine_statistics statistics = {};
    statistics.struct_size = sizeof(statistics);
    Must(mainarch_engine_statistics_get(engine_.get(), &statistics, &error), error);
    std::printf("steps %llu cancelled %d tokens %llu sequences %u\n",
                static_cast<unsigned long long>(statistics.steps), cancelled_,
                static_cast<unsigned long long>(statistics.tokens_produced), statistics.sequences);
  }

  ~Server() {
    for (auto& [fd, client] : clients_) close(fd);
    for (const int fd : {listener_, signals_, epoll_}) close(fd);
  }

  void Run() {
    for (;;) {
      epoll_event events[64];
      const int count = epoll_wait(epoll_, events, 64, -1);
      if (count < 0 && errno != EINTR) Die(std::string("epoll_wait: ") + std::strerror(errno));
      bool step_ended = false;
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == signals_) return;
        if (fd == engine_fd_) {
          step_ended = true;
        } else if (fd == listener_) {
          Accept();
        } else {
          Serve(fd, events[i].events);
        }
      }
      if (step_ended) EndStep();
      if (in_flight_) CancelIfNobodyWaits();
      if (!in_flight_) BetweenSteps();
    }
  }

 private:
  static int Signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  static int Listen(const char* path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (std::strlen(path) >= sizeof(address.sun_path)) Die("the socket's path is too long");
    std::strcpy(address.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
      Die(std::string(path) + ": " + std::strerror(errno));
    }
    return fd;
  }

  void Watch(int operation, int fd, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) Die("epoll_ctl");
  }

  // ---- clients; none of this touches the engine

  void Accept() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      clients_[fd].waiting = EPOLLIN;
      Watch(EPOLL_CTL_ADD, fd, EPOLLIN);
    }
  }

  void Serve(int fd, uint32_t events) {
    const auto found = clients_.find(fd);
    if (found == clients_.end()) return;
    Client& client = found->second;
    // Both directions are closed. A closed sending side alone is the end of a request.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) client.gone = true;
    if (!client.gone && client.state == Client::State::kReading) Read(fd, &client);
    if (!client.gone && (events & EPOLLOUT) != 0) Send(fd, &client);
    UpdateWatch(fd, &client);
  }

  void Read(int fd, Client* client) {
    char bytes[4096];
    for (;;) {
      const ssize_t n = read(fd, bytes, sizeof(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        client->gone = errno != EAGAIN;
        return;
      }
      if (n == 0) {
        client->state = Client::State::kQueued;
        queue_.push_back(fd);
        return;
      }
      client->request.append(bytes, static_cast<size_t>(n));
      if (client->request.size() > kMaxRequest) return Refuse(client, "the request is too long");
    }
  }

  void Send(int fd, Client* client) {
    while (!client->reply.empty()) {
      const ssize_t n = send(fd, client->reply.data(), client->reply.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        client->gone = errno != EAGAIN;
        return;
      }
      client->reply.erase(0, static_cast<size_t>(n));
    }
    if (client->state == Client::State::kSending) client->gone = true;  // all is said
  }

  void UpdateWatch(int fd, Client* client) {
    if (!client->watched) return;
    // EPOLLHUP comes unasked; EPOLLIN would come for ever once the sending side is closed.
    const uint32_t want = (client->state == Client::State::kReading ? EPOLLIN : 0u) |
                          (client->reply.empty() ? 0u : EPOLLOUT);
    if (client->gone) {
      client->watched = false;  // else EPOLLHUP comes for ever
      Watch(EPOLL_CTL_DEL, fd, 0);
    } else if (want != client->waiting) {
      client->waiting = want;
      Watch(EPOLL_CTL_MOD, fd, want);
    }
  }

  static void Refuse(Client* client, const std::string& why) {
    client->reply = "error: " + why + "\n";
    client->state = Client::State::kSending;
  }

  // ---- the engine

  void CancelIfNobodyWaits() {
    for (const auto& [fd, client] : clients_) {
      if (client.state == Client::State::kRunning && !client.gone) return;
    }
    mainarch_engine_cancel(engine_.get());
  }

  void EndStep() {
    mainarch_error error;
    const mainarch_status status = mainarch_engine_wait(engine_.get(), 0, &error);
    if (status == MAINARCH_TIMED_OUT) return;
    in_flight_ = false;
    if (status == MAINARCH_ERROR_CANCELLED) {
      ++cancelled_;
      return;  // nothing has changed
    }
    Must(status, error);
    for (auto& [fd, client] : clients_) {
      if (client.state != Client::State::kRunning || client.gone) continue;
      Collect(&client);
      Send(fd, &client);
      UpdateWatch(fd, &client);
    }
  }

  void Collect(Client* client) {
    mainarch_error error;
    uint32_t tokens[64];
    size_t count = 0, length = 0;
    std::vector<char> text(64 * 256);  // far more than 64 tokens have bytes
    while (mainarch_sequence_take(engine_.get(), client->sequence, tokens, 64, &count, &error) ==
           MAINARCH_OK) {
      Must(mainarch_decoder_push(client->decoder.get(), tokens, count, text.data(), text.size(),
                                 &length, &error),
           error);
      client->reply.append(text.data(), length);
    }
    mainarch_sequence_info info = {};
    info.struct_size = sizeof(info);
    Must(mainarch_sequence_info_get(engine_.get(), client->sequence, &info, &error), error);
    if (info.finish == MAINARCH_FINISH_NONE) return;
    Must(mainarch_decoder_finish(client->decoder.get(), text.data(), text.size(), &length, &error),
         error);
    client->reply.append(text.data(), length);
    client->state = Client::State::kSending;
  }

  void BetweenSteps() {
    for (auto at = clients_.begin(); at != clients_.end();) {
      Client& client = at->second;
      if (client.sequence != 0 && (client.gone || client.state == Client::State::kSending)) {
        mainarch_error error;
        Must(mainarch_sequence_close(engine_.get(), client.sequence, &error), error);
        client.sequence = 0;
      }
      if (client.gone) {
        close(at->first);
        at = clients_.erase(at);
      } else {
        ++at;
      }
    }
    for (; !queue_.empty(); queue_.pop_front()) {
      const auto found = clients_.find(queue_.front());
      if (found == clients_.end() || found->second.state != Client::State::kQueued) continue;
      if (!Begin(&found->second)) break;  // no place is free
      UpdateWatch(found->first, &found->second);
    }
    mainarch_error error;
    const mainarch_status status = mainarch_engine_submit(engine_.get(), &error);
    Must(status, error);
    in_flight_ = status == MAINARCH_OK;
  }

  // On BUFFER_TOO_SMALL `tokens` has the size to try again with: there is no other bound on how many
  // tokens a text has than three a byte.
  mainarch_status Encode(const std::string& text, std::vector<uint32_t>* tokens,
                         mainarch_error* error) {
    size_t count = 0;
    const mainarch_status status = mainarch_tokenizer_encode(
        tokenizer_.get(), text.data(), text.size(), MAINARCH_ENCODE_NO_SPECIAL, tokens->data(),
        tokens->size(), &count, error);
    tokens->resize(count);
    return status;
  }

  // False: every place is taken, and the client stays in the queue.
  bool Begin(Client* client) {
    mainarch_sequence_options options = {};
    options.struct_size = sizeof(options);
    unsigned max_tokens = 0;
    unsigned long long seed = 0;
    int head = 0;
    if (std::sscanf(client->request.c_str(), "%u %f %llu%n", &max_tokens, &options.temperature,
                    &seed, &head) != 3 ||
        client->request[static_cast<size_t>(head)] != '\n' || max_tokens == 0) {
      Refuse(client, "the first line must be MAX_TOKENS TEMPERATURE SEED");
      return true;
    }
    options.max_tokens = max_tokens;
    options.seed = seed;
    const std::string prompt = client->request.substr(static_cast<size_t>(head) + 1);
    std::vector<uint32_t> tokens(prompt.size() / 2 + 1);
    mainarch_error error;
    mainarch_status status = Encode(prompt, &tokens, &error);
    if (status == MAINARCH_ERROR_BUFFER_TOO_SMALL) status = Encode(prompt, &tokens, &error);
    if (status == MAINARCH_OK) {
      status = mainarch_sequence_open(engine_.get(), &options, &client->sequence, &error);
      if (status == MAINARCH_ERROR_BUSY) return false;
    }
    if (status == MAINARCH_OK) {
      status =
          mainarch_sequence_append(engine_.get(), client->sequence, tokens.data(), tokens.size(),
                                   &error);
    }
    mainarch_decoder* decoder = nullptr;
    if (status == MAINARCH_OK) {
      status =
          mainarch_decoder_create(tokenizer_.get(), MAINARCH_DECODE_SKIP_SPECIAL, &decoder, &error);
    }
    if (status != MAINARCH_OK) {
      Refuse(client, error.message);
      return true;
    }
    client->decoder.reset(decoder);
    client->state = Client::State::kRunning;
    return true;
  }

  Group group_;
  Model model_;
  Tokenizer tokenizer_;
  Engine engine_;
  int epoll_ = -1, listener_ = -1, signals_ = -1;
  int engine_fd_ = -1;  // the engine's own: not to be closed
  bool in_flight_ = false;
  int cancelled_ = 0;              // steps
  std::map<int, Client> clients_;  // by descriptor
  std::deque<int> queue_;          // descriptors of requests that wait for a place, oldest first
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) Die("usage: server CHECKPOINT SOCKET [SEQUENCES]");
  const int sequences = argc > 3 ? std::atoi(argv[3]) : 8;
  if (sequences < 1) Die("SEQUENCES must be at least 1");
  Server server(argv[1], argv[2], static_cast<uint32_t>(sequences));
  std::printf("ready\n");
  std::fflush(stdout);
  server.Run();
  server.Report();
}
