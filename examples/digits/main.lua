-- Trains a small network on the 8x8 handwritten digits of examples/data and tests it on a fifth held out.

local ag = require "argand"
local nn, optim, data = ag.nn, ag.optim, ag.data

local EPOCHS, BATCH_SIZE, LEARNING_RATE, SEED = 60, 32, 3e-3, 1

-- The data lies beside this script, wherever it is started from.
local here = arg[0]:match "^(.*)/[^/]*$" or "."

ag.manual_seed(SEED)

local digits = assert(data.idx(here .. "/../data/digits-images.idx3-ubyte.gz",
  here .. "/../data/digits-labels.idx1-ubyte.gz"))
local images, labels = unpack(digits.tensors)
local pixels = images:to("f32"):div(16):reshape(-1, 64)

local train_set, test_set = data.split(data.TensorDataset { pixels, labels }, { 0.8, 0.2 }, { seed = SEED })
local train_loader = data.Loader(train_set, { batch_size = BATCH_SIZE, shuffle = true, seed = SEED })
local test_loader = data.Loader(test_set, { batch_size = 256 })

local model = nn.Sequential(
  nn.Linear(64, 256, { activation = "relu" }),
  nn.Dropout(0.3),
  nn.Linear(256, #digits.classes))
local optimizer = optim.AdamW(model:parameters(), { lr = LEARNING_RATE })

print(model)
print(("%d digits to train on, %d to test"):format(#train_set, #test_set))

local function train_epoch()
  local total = 0
  model:train()
  for x, y in train_loader:batches() do
    local loss = model(x):cross_entropy(y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    total = total + loss:item() * #x
  end
  return total / #train_set
end

local function test_accuracy()
  model:eval()
  return ag.no_grad(function()
    local correct = 0
    for x, y in test_loader:batches() do
      correct = correct + model(x):argmax(-1):eq(y):sum():item()
    end
    return correct / #test_set
  end)
end

for epoch = 1, EPOCHS do
  print(("epoch %2d  loss %.4f"):format(epoch, train_epoch()))
end
print(("test accuracy %.4f"):format(test_accuracy()))
