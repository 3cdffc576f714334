#!/bin/bash
cp /solution/v "$HOME_OF_V"
