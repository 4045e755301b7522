--- full: sample data.
return {
  calls = {{shape = {3, 4}, value = 1}, {shape = {7}, value = 5}}, empty = {{shape = {0, 4}, value = 2}},
  scalar = {{shape = {}, value = 3}}, special = {{shape = {3}, value = 0 / 0}, {shape = {3}, value = -1 / 0}},
  large = {shape = {100003}, value = 2.5}, expect = {{{shape = {2, 2}, value = 1}, {{1, 1}, {1, 1}}}},
}
