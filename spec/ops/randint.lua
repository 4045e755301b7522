--- randint: sample data.
return {
  calls = {{low = 0, high = 10, shape = {3, 4}}, {low = 1, high = 100, shape = {37}}},
  empty = {{low = 0, high = 2, shape = {0, 4}}},
  scalar = {{low = 3, high = 4, shape = {}}}, special = false, large = {low = 0, high = 7, shape = {100003}},
  expect = {{{low = 3, high = 4, shape = {2}}, {3, 3}}},
}
