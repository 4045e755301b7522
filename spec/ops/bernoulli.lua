--- bernoulli: sample data.
return {
  gen = {p = {range = {0, 1}, special = false}},
  calls = {{p = {3, 4}}, {p = {37}}}, empty = {{p = {0, 4}}}, scalar = {{p = {}}}, large = {p = {100003}},
  expect = {{{p = {0, 1, 0, 1}}, {0, 1, 0, 1}}},
}
