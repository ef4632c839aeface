// Lets a test ask the pure classes behind drafting, one command a line on standard input, one answer a line.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "draft_gain.h"
#include "draft_policy.h"
#include "prompt_lookup.h"

namespace {

void lookUp(std::istringstream& line) {
  int most = 0;
  line >> most;
  std::vector<int32_t> tokens;
  for (int32_t token = 0; line >> token;) tokens.push_back(token);
  for (const int32_t token : steerage::PromptLookup().continuation(tokens, most)) std::cout << token << ' ';
  std::cout << '\n';
}

}  // namespace

int main() {
  steerage::DraftPolicy policy(5);
  steerage::DraftGain gain;
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string command;
    line >> command;
    int a = 0;
    int b = 0;
    int c = 0;
    double seconds = 0.0;
    if (command == "lookup") {
      lookUp(line);
    } else if (command == "policy") {
      line >> a;
      policy = steerage::DraftPolicy(a);
      std::cout << "ok\n";
    } else if (command == "next") {
      std::cout << policy.next() << '\n';
    } else if (command == "drafted") {
      line >> a >> b;
      policy.record(a, b);
      std::cout << (policy.rests() ? "rests" : "goes on") << '\n';
    } else if (command == "gain") {
      gain = steerage::DraftGain();
      std::cout << "ok\n";
    } else if (command == "favours") {
      line >> a;
      std::cout << (gain.favours(a) ? "drafts" : "plain") << '\n';
    } else if (command == "step") {
      line >> a >> b >> c >> seconds;
      gain.record(a, b != 0, c, seconds);
      std::cout << "ok\n";
    } else {
      std::cout << "unknown command\n";
    }
  }
}
